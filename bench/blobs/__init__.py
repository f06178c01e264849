"""Uploads and downloads of BLOBs, with and without encryption, beside what the machine does by hand."""
