"""A network for sandboxes that leads to the public internet and nowhere else.

Each sandbox has a network namespace of its own (``slots``), joined to a ``gateway``: one more namespace, between them
and the host, whose routes say what they may reach (``reach``). The gateway masquerades (``netfilter``) what it lets
through, so nothing outside can begin a conversation with a sandbox, and answers name lookups (``dns``). ``netlink``
and ``links`` talk to the kernel.

Nothing of it has a name in the file system: namespaces and firewall tables are held by file descriptors of the
worker's process and end with it, however it ends.
"""
