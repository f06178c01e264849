"""Custom resources, such as GPUs: amounts that slots need, and the addresses that task managers hand out."""
