"""Conversations: read from files of any form, filtered, rendered, weighted and kept as training sequences."""
