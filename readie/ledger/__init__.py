"""The ledger: each call's record in Redis, the one truth about it.

Messages in queues only wake somebody up. Whether a call may be placed, begun or ended is decided here, by Lua scripts
that check its state and attempt number, so that a message that is lost, doubled, late or forged changes nothing.
"""

from .ledger import Cancelled, Claim, Ended, Ledger, NoRoom, Placed, Settled, Watch

__all__ = ["Cancelled", "Claim", "Ended", "Ledger", "NoRoom", "Placed", "Settled", "Watch"]
