DROP TABLE vision_workers;
DROP TABLE vision_models;
