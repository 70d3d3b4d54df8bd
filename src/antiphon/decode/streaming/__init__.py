"""Online decoding: writes outputs while inputs still arrive."""
