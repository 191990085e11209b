-- A table memories that we made goes only while every row in it came with an image.
CALL vision_put_back(1);
DROP PROCEDURE vision_put_back;
DROP TABLE vision_undo;
