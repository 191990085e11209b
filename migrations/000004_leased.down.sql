DROP INDEX memories_image_leased;
