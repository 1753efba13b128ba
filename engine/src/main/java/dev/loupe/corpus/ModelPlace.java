package dev.loupe.corpus;

import java.nio.file.Path;
import java.util.Optional;

/**
 * Where the machines of a cluster find a model.
 *
 * @param source a path that is the same on every machine, or an address (hdfs://, s3a://) that each
 *     fetches from
 * @param ship whether the driver sends what lies at the path along
 * @param gpt2Tokenizer folder of GPT-2's own tokenizer, for a model that comes without
 */
public record ModelPlace(String source, boolean ship, Optional<Path> gpt2Tokenizer) {}
