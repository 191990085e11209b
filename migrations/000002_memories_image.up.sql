-- An index build over adopted rows is slow once it outgrows this memory. One process builds it:
-- parallel ones need that much shared memory at once, which containers rarely have.
SELECT set_config('maintenance_work_mem', greatest(
    pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, 512 * 1024
)::text, true);
SET LOCAL max_parallel_maintenance_workers = 0;

-- Start from memini-ai's own table, found or made; the steps after it are the same for both. One
-- that was made goes again unless others have put pictures into it.
INSERT INTO vision_undo (migration, statement)
SELECT 2, $undo$
    DO $drop$ BEGIN
        IF NOT EXISTS (
            SELECT FROM memories_image JOIN memories ON memories.id = memory_id
            WHERE (metadata ? 'image_id') IS NOT TRUE
        ) THEN
            DROP TABLE memories_image;
        END IF;
    END $drop$
$undo$ WHERE to_regclass('memories_image') IS NULL;

CREATE TABLE IF NOT EXISTS memories_image (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    memory_id uuid NOT NULL UNIQUE REFERENCES memories (id) ON DELETE CASCADE,
    embedding vector(768) NOT NULL,
    embedding_model varchar(100) NOT NULL DEFAULT 'placeholder-768',
    image_path text NOT NULL,
    image_sha256 varchar(64) NOT NULL,
    mime_type varchar(50) NOT NULL,
    width int,
    height int,
    caption text,
    file_size_bytes bigint,
    trust_score float DEFAULT 0.5 CHECK (trust_score BETWEEN 0 AND 1),
    created_at timestamptz DEFAULT now()
);

DO $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE attrelid = 'memories_image'::regclass AND relkind = 'r'
        HAVING array_agg(attname::text) @> ARRAY['id', 'memory_id', 'mime_type', 'created_at']
            AND array_agg(attname::text) && ARRAY['image_path', 'file_path']
            AND bool_or(attname = 'embedding' AND atttypmod = 768)
    ) THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE =
            'its table memories_image is neither the one of memini-ai-dev nor of memini-vision';
    END IF;
END $$;

INSERT INTO vision_undo (migration, statement)
SELECT 2, pg_get_indexdef(to_regclass('idx_memories_image_embedding'))
WHERE to_regclass('idx_memories_image_embedding') IS NOT NULL
UNION ALL
SELECT 2, format(
    'ALTER TABLE memories_image ADD CONSTRAINT %I %s', conname, pg_get_constraintdef(oid)
)
FROM pg_constraint
WHERE conrelid = 'memories_image'::regclass AND conname = 'memories_image_sha256_key'
UNION ALL
SELECT 2, format('ALTER TABLE memories_image DROP COLUMN %I', name)
FROM unnest(ARRAY[
    'file_path', 'sha256', 'image_path', 'image_sha256', 'source_tool', 'tags', 'trust_score'
]) AS name
WHERE NOT EXISTS (
    SELECT FROM pg_attribute WHERE attrelid = 'memories_image'::regclass AND attname = name
)
UNION ALL
SELECT 2, format(
    'ALTER TABLE memories_image ALTER %1$I TYPE %2$s USING %1$I::%2$s, '
    'ALTER %1$I %3$s NOT NULL, ALTER %1$I %4$s',
    attname, format_type(atttypid, atttypmod), CASE WHEN attnotnull THEN 'SET' ELSE 'DROP' END,
    coalesce('SET DEFAULT ' || pg_get_expr(adbin, adrelid), 'DROP DEFAULT')
)
FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
WHERE attrelid = 'memories_image'::regclass
    AND attname IN ('embedding_model', 'source_tool', 'tags', 'created_at');

DROP INDEX IF EXISTS idx_memories_image_embedding;

-- PLAIN: vectors out of line make the table look so small that the planner shuns the index.
ALTER TABLE memories_image
    DROP CONSTRAINT IF EXISTS memories_image_sha256_key,
    ADD COLUMN IF NOT EXISTS file_path text,
    ADD COLUMN IF NOT EXISTS sha256 varchar(64),
    ADD COLUMN IF NOT EXISTS image_path text,
    ADD COLUMN IF NOT EXISTS image_sha256 varchar(64),
    ADD COLUMN IF NOT EXISTS source_tool text,
    ADD COLUMN IF NOT EXISTS tags jsonb DEFAULT '[]',
    ADD COLUMN IF NOT EXISTS trust_score float DEFAULT 0.5 CHECK (trust_score BETWEEN 0 AND 1),
    ADD COLUMN namespace text NOT NULL DEFAULT 'default',
    ADD COLUMN save_key text UNIQUE,
    ADD COLUMN caption_embedding vector(384),
    ADD COLUMN embedded_at timestamptz,
    ADD COLUMN embedding_error text,
    ADD COLUMN embedding_error_code text,
    ADD COLUMN attempts int NOT NULL DEFAULT 0,
    ADD COLUMN next_attempt_at timestamptz DEFAULT now(),
    ADD COLUMN lease_token uuid,
    ADD COLUMN lease_expires_at timestamptz,
    ALTER COLUMN embedding DROP NOT NULL,
    ALTER COLUMN embedding SET STORAGE PLAIN,
    ALTER COLUMN embedding_model TYPE text,
    ALTER COLUMN embedding_model DROP NOT NULL,
    ALTER COLUMN embedding_model DROP DEFAULT;

-- A vector of zeros stands for none; every other vector stays, under the name of its model.
UPDATE memories_image
SET file_path = coalesce(file_path, image_path),
    sha256 = coalesce(sha256, image_sha256),
    image_path = coalesce(image_path, file_path),
    image_sha256 = coalesce(image_sha256, sha256),
    tags = coalesce(tags, '[]'),
    created_at = coalesce(created_at, now()),
    embedding = CASE WHEN vector_norm(embedding) > 0 THEN embedding END,
    embedding_model = CASE WHEN vector_norm(embedding) > 0 THEN embedding_model END,
    embedded_at = CASE WHEN vector_norm(embedding) > 0 THEN coalesce(created_at, now()) END;

ALTER TABLE memories_image
    ALTER COLUMN file_path SET NOT NULL,
    ALTER COLUMN sha256 SET NOT NULL,
    ALTER COLUMN source_tool TYPE text,
    ALTER COLUMN tags SET NOT NULL,
    ALTER COLUMN tags SET DEFAULT '[]',
    ALTER COLUMN created_at SET NOT NULL,
    ADD COLUMN embedding_status text NOT NULL GENERATED ALWAYS AS (
        CASE
            WHEN embedding IS NOT NULL THEN 'embedded'
            WHEN embedding_error_code IS NOT NULL AND next_attempt_at IS NULL THEN 'failed'
            ELSE 'pending'
        END
    ) STORED,
    ADD COLUMN claimable_at timestamptz NOT NULL GENERATED ALWAYS AS (
        greatest(created_at, next_attempt_at, lease_expires_at)
    ) STORED;

-- Published clients write image_path and image_sha256, or file_path and sha256. A generated column
-- could be read under both names but not written, so this keeps the two pairs the same.
CREATE FUNCTION memories_image_names() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        NEW.file_path := coalesce(NEW.file_path, NEW.image_path);
        NEW.sha256 := coalesce(NEW.sha256, NEW.image_sha256);
    ELSE
        IF NEW.file_path = OLD.file_path THEN NEW.file_path := NEW.image_path; END IF;
        IF NEW.sha256 = OLD.sha256 THEN NEW.sha256 := NEW.image_sha256; END IF;
    END IF;
    NEW.image_path := NEW.file_path;
    NEW.image_sha256 := NEW.sha256;
    RETURN NEW;
END $$;

CREATE TRIGGER memories_image_names
BEFORE INSERT OR UPDATE OF file_path, sha256, image_path, image_sha256 ON memories_image
FOR EACH ROW EXECUTE FUNCTION memories_image_names();

-- memini-ai's own name: its CREATE INDEX IF NOT EXISTS then finds it made.
CREATE INDEX idx_memories_image_embedding ON memories_image
    USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64);
CREATE INDEX memories_image_claimable ON memories_image (claimable_at)
    WHERE embedding_status = 'pending';
CREATE INDEX memories_image_failed ON memories_image (embedding_error_code)
    WHERE embedding_status = 'failed';
CREATE INDEX memories_image_newest ON memories_image (namespace, created_at DESC, id);
CREATE INDEX memories_image_blob ON memories_image (sha256);
CREATE INDEX memories_image_tags ON memories_image USING gin (tags jsonb_path_ops);
CREATE INDEX memories_image_caption ON memories_image
    USING gin (to_tsvector('simple', coalesce(caption, '')));
