"""The image table: data, networks, methods, protocol, records and the page that shows them."""
