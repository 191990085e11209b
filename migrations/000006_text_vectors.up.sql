-- The key of the model that made the two text vectors of a picture, that of its memory and that of
-- its caption; null while they are wanted.
ALTER TABLE memories_image ADD COLUMN text_model text;
CREATE INDEX memories_image_textless ON memories_image (created_at) WHERE text_model IS NULL;
