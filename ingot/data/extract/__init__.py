"""Raw pages to plain text: the main content of HTML, mojibake repaired, Unicode in one normal form."""
