SELECT set_config('maintenance_work_mem', greatest(
    pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, 512 * 1024
)::text, true);
SET LOCAL max_parallel_maintenance_workers = 0;

DROP TRIGGER memories_image_names ON memories_image;
DROP FUNCTION memories_image_names;

DROP INDEX
    idx_memories_image_embedding, memories_image_claimable, memories_image_failed,
    memories_image_newest, memories_image_blob, memories_image_tags, memories_image_caption;

-- The old table has no pending rows: they get its placeholder, which no search of its own returns.
UPDATE memories_image
SET embedding = coalesce(embedding, array_fill(0::real, ARRAY[768])::vector),
    embedding_model = CASE
        WHEN embedding IS NULL THEN 'placeholder-768'
        ELSE coalesce(embedding_model, 'placeholder-768')
    END
WHERE embedding IS NULL OR embedding_model IS NULL;

ALTER TABLE memories_image
    DROP COLUMN embedding_status,
    DROP COLUMN claimable_at;
ALTER TABLE memories_image
    DROP COLUMN namespace,
    DROP COLUMN save_key,
    DROP COLUMN caption_embedding,
    DROP COLUMN embedded_at,
    DROP COLUMN embedding_error,
    DROP COLUMN embedding_error_code,
    DROP COLUMN attempts,
    DROP COLUMN next_attempt_at,
    DROP COLUMN lease_token,
    DROP COLUMN lease_expires_at,
    ALTER COLUMN embedding SET STORAGE EXTERNAL,
    ALTER COLUMN embedding SET NOT NULL;

CALL vision_put_back(2);
