"""Ways to carry bytes. No protocol lives here."""
