"""What every protocol shares: arithmetic, tables and declarations. No protocol and no I/O lives here."""
