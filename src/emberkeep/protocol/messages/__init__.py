"""Messages between JobManager, TaskManagers and JobMasters.

The protocol is level-triggered. Heartbeats carry the whole state of the sender and are sent at once after a change, so
the next heartbeat repairs a lost, repeated or late message. Each request identifies its sender's current term: the
epoch of the JobManager, the instance of a TaskManager, the attempt of a JobMaster. A receiver that knows a newer term
refuses the request with Conflict. Messages are encoded as MessagePack; wrong types are refused.

Neighbouring releases talk to each other while a cluster is upgraded (``base.compatible``): unknown fields are ignored,
and the default of a new field means what the previous release did. PROTOCOL_VERSION changes only if that is impossible.

Each module has what two kinds of processes send to each other, or what one kind reports.
"""
