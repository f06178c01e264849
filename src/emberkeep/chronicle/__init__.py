"""What has happened to jobs and to the cluster, as users read it: ``emberkeep events``. Pure."""
