"""Methods that climb a bound."""
