DROP VIEW IF EXISTS vision_worker.memories_image;
DROP SCHEMA IF EXISTS vision_worker;
