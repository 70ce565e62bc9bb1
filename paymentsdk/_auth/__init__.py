"""Tokens: schemes that authenticate requests, token refresh, and token stores."""
