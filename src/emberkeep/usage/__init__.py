"""How busy machines and slots have been: bounded histories, which the leader keeps and stores."""
