"""Words that say nothing about a picture, folded as ``names.fold`` does, of several languages."""

_EMPTY = """
a an the of at in on to by for from with without into onto over under and or but nor not no is are
was were be been being am it its this that these those there here i me my we us our ours you
your yours he him his she her hers they them their theirs who whom whose which what when where why
how do does did done have has had having would should could shall some any as if so than then
too very just about
el la los las lo un una unos unas de del al y o u en con sin por para que es mi mis tu tus su sus
se le les me te nos como donde cuando esta este esto esos esas ese esa hay
os as um uma uns umas do da dos das no na nos nas em e ou com sem meu minha seu sua ao aos pelo
pela isso isto onde
le les une des du d et ou dans sur avec sans pour par que qui est sont il elle ils elles je tu nous
vous mon ma mes ton ta tes notre votre ce cet cette ces au aux ne pas se en y ou
der die das dem ein eine einen einem einer eines und oder im ins am an auf aus bei beim mit nach von
vom zu zum zur unter ist sind ich du er sie es wir ihr mein meine meinem meinen meiner dein
deine sein seine unser wo wer was wie dass nicht
il lo gli i di dello della dei degli delle nel nello nella nei nelle sul sulla che chi e ed o ma non
mio mia miei mie tuo tua suo sua con per tra fra da dal dalla
de het een en of op bij voor met naar uit om ik je jij hij zij wij mijn jouw zijn haar ons die
dat deze dit niet waar
och det som av pa jag du vi er
i ze na do od po za o u sie nie to jest moj moja moje
ve ile bir bu su icin de da mi
и в во на с со к ко у о об от до из за по под над при для без не ни но а или это этот эта эти тот та
те я мы ты вы он она они оно мой моя мое мои моей моего твой твоя его ее их где кто что как когда
есть был была было были
і й та у в на з зі до від про що це цей ця ці мій моя моє мої
ο η το οι τα του τησ των τον την τη στο στη στον στην στα στουσ στισ ενα ενασ μια και με σε απο για
που ειναι μου σου τι ποιοσ ποια ποιο
في من على الى إلى عن مع هذا هذه ذلك تلك هو هي انا أنا و او أو ما هل
של את עם על זה זו זאת אני הוא היא ב ה ו או לא מה
का की के को में से पर और या है हैं था थी यह वह मेरा मेरी मेरे
の を は が に で と も へ や か よ ね な から まで です ます だ
この その あの これ それ あれ さん ちゃん くん 様
的 了 吗 呢 我 你 他 她 它 是 在 和 与 这 那 个 有
은 는 이 가 을 를 의 에 에서 와 과 도 로 내 나의 제 그 저
ที่ ของ และ ใน กับ เป็น คือ
"""

_ASKING = """
can show shows showing find see look looks looking search get give bring back open
remember recall recalled want wants need please let know like tell keep kept save saved one ones
thing things something picture pictures photo photos photograph photographs image images pic pics
screenshot screenshots keepsake keepsakes
person self product post place scene other
foto fotos fotografia imagen imagenes muestra muestrame busca buscame ensename encuentra quiero ver
puedes mostrar imagem imagens mostra mostre procura procure quero
montre moi image images cherche trouve veux voir photo
zeig zeige zeigen mir bild bilder such suche finde sehen bitte fotos
mostrami cerca trova immagine immagini vorrei vedere
laat zien toon zoek vind afbeelding plaatje
visa hitta bilden bild
pokaz znajdz zdjecie obraz
goster bul resim resmi fotograf fotografi
покажи покажите найди фото фотография фотографию фотку картинка картинку снимок мне хочу
δειξε βρεσ φωτογραφια φωτογραφιεσ εικονα θελω
صورة الصورة صور ارني أرني اعرض ابحث
תמונה תמונות תמונת הראה תראה מצא לי
फोटो तस्वीर चित्र दिखाओ दिखा मुझे
"""

UNSPACED_ASKING = frozenset(
    """
    写真 画像 しゃしん 見せて 見たい 探して どこ ください お願い
    照片 图片 圖片 图像 相片 给我看 給我看 看看 想看 显示 顯示 找到
    사진 그림 이미지 보여줘 보여주세요 보여 찾아줘 찾아 어디
    รูปภาพ รูปถ่าย รูป ภาพ ขอดู
    """.split()
)
"""What a question in a script without spaces is parted at."""

EMPTY = frozenset(_EMPTY.split())
"""Articles, pronouns, prepositions and the like: nothing is found by them."""
ASKING = frozenset(_ASKING.split()) | UNSPACED_ASKING
"""Words to ask for a picture with, and the kinds: something is found by them only where a question
has nothing else."""
