"""Takes plain text out of raw pages: the main content of HTML, mojibake repaired, Unicode in one normal form."""
