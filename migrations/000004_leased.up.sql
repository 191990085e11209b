-- A worker renews its leases by token. Without this that reads the whole table.
CREATE INDEX memories_image_leased ON memories_image (lease_token) WHERE lease_token IS NOT NULL;
