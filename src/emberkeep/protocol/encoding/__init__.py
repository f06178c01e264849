"""How messages and byte ranges are written: MessagePack, large parts as BLOBs, only fields that the receiver knows."""
