-- The vectors in memories stay, as the memories of the pictures do: memini-ai can use them.
ALTER TABLE memories_image DROP COLUMN text_model;
