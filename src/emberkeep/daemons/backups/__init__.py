"""``emberkeep backup``: processes that make, check and restore backups, with the access that daemons have."""
