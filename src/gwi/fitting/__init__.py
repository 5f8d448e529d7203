"""How a fit is made."""
