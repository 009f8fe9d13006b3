"""The router: takes calls off the submit queue and sends each to the worker where it starts soonest.

Decisions are pure: :mod:`router.needs` (which workers can take a call), :mod:`router.scoring` and
:mod:`router.catalogue` (what each way to start is predicted to cost), :mod:`router.placement` (which worker). Around
them: :mod:`router.fleet` (what is known of the workers), :mod:`router.message` (Celery's messages),
:mod:`router.dispatch` (carries decisions out through the ledger), :mod:`router.waiting` (calls that no worker can take
now), :mod:`router.explain` (says what would be done), :mod:`router.ending` and :mod:`router.dead_letters` (calls that
fail here, items that are none). :mod:`router.consumer` and :mod:`router.service` drive it, :mod:`router.expiry` ends
what was not begun in time, :mod:`router.recovery` finds what the dead left, ``python -m router`` puts it together.

A router keeps nothing that Redis does not have: any number run side by side, and killing one loses nothing.
"""
