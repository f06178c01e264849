"""What jobs lack: who waits for slots, and why there are none."""
