"""The actors of a task manager: slots, processes of drivers and executors."""
