DROP TABLE vision_reembeddings;
ALTER TABLE vision_models DROP COLUMN target;
