"""Thin adapters: protocol in, library call, protocol out; one module per consumer."""
