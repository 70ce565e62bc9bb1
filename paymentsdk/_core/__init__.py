"""The engine: it carries a call from a Struct to an answer and knows no resource."""
