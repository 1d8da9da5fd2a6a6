"""The report room: reads a run folder and nothing else, and makes one HTML file that a person enjoys opening."""
