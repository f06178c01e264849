"""BLOB stores on disks and in object stores, and BLOB transfers over HTTP."""
