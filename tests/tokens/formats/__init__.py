"""Chat formats: how published models write thinking and tool calls."""
