"""The generic Provider: its session, its failure domains, its conditions, for any backend.

What machine reconcilers use: `sessions.ProviderSessions.open(key)`, which gives the Provider's
`session.ProviderSession`, and `in_use.ensure_in_use` before a mint.
"""
