"""What a log says, record by record: levels, times, search, and several logs merged by time. Pure."""
