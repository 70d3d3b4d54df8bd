"""What people look at: tables, alignment pictures, training curves."""
