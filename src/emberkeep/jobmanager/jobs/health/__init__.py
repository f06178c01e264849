"""The health of jobs: their watchdogs, and the notifications about alarms and new states."""
