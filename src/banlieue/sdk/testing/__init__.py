"""What tests and simulations of controllers need: an in-memory API and small fakes of the seams."""
