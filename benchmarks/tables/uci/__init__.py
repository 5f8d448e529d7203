"""The UCI table: methods, protocol, records and the page that shows them."""
