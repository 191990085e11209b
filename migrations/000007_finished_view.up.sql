-- What software that knows nothing of pending rows may read in place of the table: a schema that
-- goes before the others in its search_path. Its rows are finished, of the active model, and of the
-- namespace in vision_worker.namespace. The rights are those of whoever reads it, so it opens
-- nothing that the table does not.
DO $$
BEGIN
    CREATE SCHEMA vision_worker;
    CREATE VIEW vision_worker.memories_image WITH (security_invoker = true) AS
    SELECT
        id, memory_id, embedding, embedding_model, image_path, image_sha256, file_path, sha256,
        mime_type, width, height, caption, file_size_bytes, trust_score, source_tool, tags,
        created_at
    FROM memories_image
    WHERE embedding IS NOT NULL
        AND embedding_model = ANY(ARRAY(
            SELECT key FROM vision_models WHERE active
            UNION ALL
            SELECT name FROM vision_models WHERE active AND framing = 'centre-crop'
        ))
        AND namespace = coalesce(
            nullif(current_setting('vision_worker.namespace', true), ''), 'default'
        );
    GRANT USAGE ON SCHEMA vision_worker TO PUBLIC;
    GRANT SELECT ON vision_worker.memories_image TO PUBLIC;
EXCEPTION WHEN insufficient_privilege THEN
    -- Only unmodified videre-mcp reads it; everything else works without.
    RAISE NOTICE 'no view of finished rows: %', sqlerrm;
END $$;
