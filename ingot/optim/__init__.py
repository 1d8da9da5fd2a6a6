"""AdamW, schedules, and which parameters they apply to."""
