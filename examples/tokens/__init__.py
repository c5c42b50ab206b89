"""A thousand token embeddings of a public sentence encoder and their 500 singular-plural pairs."""
