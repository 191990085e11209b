ALTER TABLE vision_models DROP COLUMN look_floor;
DROP TABLE vision_events;
DROP TABLE keepsakes;
