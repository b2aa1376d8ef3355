"""Objects joined into shared objects, and what is known of both: no linker is needed."""
