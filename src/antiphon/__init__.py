"""Antiphon: an event-sourced session engine for realtime voice conversations and batch generations."""

__version__ = "0.1.0"
