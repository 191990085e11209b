-- Vectors of the next model gather here until there is one for every image; then they move over.
ALTER TABLE vision_models ADD COLUMN target boolean NOT NULL DEFAULT false;
CREATE UNIQUE INDEX vision_models_one_target ON vision_models (target) WHERE target;

CREATE TABLE vision_reembeddings (
    model_key text NOT NULL REFERENCES vision_models (key) ON DELETE CASCADE,
    image_id uuid NOT NULL REFERENCES memories_image (id) ON DELETE CASCADE,
    embedding vector(768),
    error text,
    error_code text,
    attempts int NOT NULL DEFAULT 0,
    claimable_at timestamptz DEFAULT now(),
    lease_token uuid,
    PRIMARY KEY (model_key, image_id)
);
CREATE INDEX vision_reembeddings_claimable ON vision_reembeddings (model_key, claimable_at)
    WHERE claimable_at IS NOT NULL;
CREATE INDEX vision_reembeddings_leased ON vision_reembeddings (lease_token)
    WHERE lease_token IS NOT NULL;
CREATE INDEX vision_reembeddings_image ON vision_reembeddings (image_id);
