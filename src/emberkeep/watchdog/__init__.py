"""The watchdog: finds streaming queries that are stuck or fall behind, and jobs that restart again and again."""
