package dev.loupe.chat;

/** A chat template that can't be used, or not for these messages. The message is one sentence. */
public final class ChatTemplateException extends Exception {
  private static final long serialVersionUID = 1L;

  ChatTemplateException(String message) {
    super(message);
  }
}
