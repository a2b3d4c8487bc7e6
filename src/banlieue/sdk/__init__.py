"""What every backend and controller is built from; the stable package third parties import."""
